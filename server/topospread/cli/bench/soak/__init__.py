"""A day's changes of a large cluster, as fast as they go, with callers beside them.

A fleet of applications, jobs and nodes lives through a timetable and says what is written about it.
That goes through a server, which callers ask meanwhile. A witness follows the log from revision 0
and compares its index with one that is made anew; a second server, freshly started, is asked the
same as the first. What must not grow is sampled over the whole run.
"""
