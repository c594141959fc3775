"""A login with a ChatGPT plan, for agents and judges of the codex backend.

    service     the addresses of the sign-in service, and how it is spoken to
    tokens      what the service answers, checked
    store       the stored login: one file, its lock, the id of this machine
    sign_in     the way through the browser
    session     an access token that lasts for one call; signing out

A refresh token can be used once. Were it copied into the home of every attempt, parallel attempts would refresh it one
after the other, and each would end the login of all the others. So it never leaves the stored file: the process that
runs the attempts refreshes, one at a time, and an attempt is given an access token that expires within the hour.
"""
