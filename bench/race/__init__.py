"""Several servers place pods at once, and everything is judged afterwards.

Callers place, bind and release; another thread deletes pods and changes nodes. A recorder follows
the store's log from revision 0 and misses nothing. Afterwards each place that was held is judged by
a plain recount of the state just before it: the judge shares no line with the server.
"""
