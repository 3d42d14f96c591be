"""The console: what a folder or a broker holds, as pages for a browser (`odradek ui`).

    browser -> Guard -> pages -> Source -> Admin, Place        a folder or a broker
               |        |
               |        templates, static                      no script is needed but for what is live
               Host, Origin, login, headers, time-outs

Nothing is written. Starlette, uvicorn and Jinja2 are the extra `odradek[ui]`.
"""
