"""A day's changes of a large cluster, as fast as they go, with callers beside them.

A simulated cluster of applications, jobs and nodes follows a timetable, which yields its changes.
That goes through a server, which callers ask meanwhile. A reference replica follows the log from
revision 0 and compares its index with one that is built anew; a second server, freshly started, is
asked the same as the first. What must not grow is sampled over the whole run.
"""
