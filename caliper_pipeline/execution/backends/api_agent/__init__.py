"""The agent that `claude-api` and `openai-api` run: a tool loop on the vendors' own SDKs, in a process of its own.

None of it runs in our process, though a rule or two is borrowed from here. `api_program.py` hands the modules to a
bare interpreter through its standard input, where they are a package called `agent`: no path, argument or variable of
the process says what it belongs to, and no file of it lies about for a tool to change. So these modules import each
other relatively, and nothing else of ours.

    start     the first code that runs: takes key and program from standard input and wipes it
    main      one task from the first event to the exit code
    loop      turns, tool calls, retries and limits, whatever the protocol
    talk      the values that loop and protocols pass to each other
    messages, responses, chat   the three protocols: Anthropic's, OpenAI's, and what local servers speak
    failures  what went wrong with a request, and whether asking again may help
    tools     bash, read, write, edit, skill; `shell` runs commands, `skills` finds skills, `servers` speaks MCP
    events    the stream on standard output; `api_stream.py` reads it and describes it
"""
