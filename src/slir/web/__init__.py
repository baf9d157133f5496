"""`slir serve`: a page in the browser, and the HTTP API under it.

    app.py        the application put together            guard.py     who may talk to it, and what every answer says
    files.py      routes: pictures, kernels, masks         store.py     what clients have sent, in a private folder
    restoring.py  routes: jobs                             crew.py      processes that work, and may die
    bench.py      jobs: queued, done, kept, forgotten      work.py      what these processes do
    runs.py       one job                                  trust.py     how far its result may be trusted
    events.py     progress as server-sent events           display.py   arrays as pictures of eight bits
    examples.py   pictures to try                          problems.py  what is said when something is refused
    replies.py    the shapes of what is sent and answered  settings.py  limits
    server.py     what all routes share

The server itself never decodes a file of a client's and never imports torch: processes of the crew do, so that what
kills them is told to one client, and the others notice nothing.
"""
