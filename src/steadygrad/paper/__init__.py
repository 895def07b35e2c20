"""The reproduction of the paper: data, experiments, the engine that runs them, records, the report and the command line.

It uses the library as anybody would; nothing outside this folder imports it.
"""
