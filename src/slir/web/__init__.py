"""`slir serve`: a page in the browser, and the HTTP API under it.

    app.py        the application put together            guard.py        who may talk to it, and what every answer says
    files.py      routes: pictures, kernels, masks         connections.py  how many, and how long they may wait
    restoring.py  routes: jobs                             store.py        what clients have sent, in a private folder
    bench.py      jobs: queued, done, kept, forgotten      crew.py         processes that work, and may die
    runs.py       one job                                  readers.py      those that decode what clients send
    events.py     progress as server-sent events           work.py         what these processes do
    previews.py   route: a crop restored at once           crops.py        how a crop is restored
    archive.py    route: results as one ZIP file           trust.py        how far a result may be trusted
    examples.py   pictures to try                          questions.py    short work between two jobs
    replies.py    the shapes of what is sent and answered  display.py      arrays as pictures of eight bits
    server.py     what all routes share                    problems.py     what is said when something is refused
                                                           settings.py     limits

The server itself never decodes a file of a client's and never imports torch: processes of the crew do, so that what
kills them is told to one client, and the others notice nothing.
"""
