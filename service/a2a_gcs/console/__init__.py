"""The console: contexts, tasks and workspaces in a browser, rendered on the server.

It reads what is stored below the caller's root, and writes nothing by itself: sending and canceling go through the same
request handler as the API, so that the linear rule, limits and errors are the same.
"""
