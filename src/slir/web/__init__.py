"""`slir serve`: a page in the browser, and the HTTP API under it.

    app.py        the application put together            guard.py     who may talk to it, and what every answer says
    files.py      routes: pictures, kernels, masks         store.py     what clients have sent, in a private folder
    restoring.py  routes: jobs                             crew.py      processes that work, and may die
    bench.py      jobs: queued, done, kept, forgotten      readers.py   those that decode what clients send
    runs.py       one job                                  work.py      what these processes do
    events.py     progress as server-sent events           trust.py     how far its result may be trusted
    examples.py   pictures to try                          display.py   arrays as pictures of eight bits
    replies.py    the shapes of what is sent and answered  problems.py  what is said when something is refused
    server.py     what all routes share                    settings.py  limits

The server itself never decodes a file of a client's and never imports torch: processes of the crew do, so that what
kills them is told to one client, and the others notice nothing.
"""
