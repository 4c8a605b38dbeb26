"""Serves a model with llama.cpp's own server: serve.py MODEL SLOTS CONTEXT.

It answers up to SLOTS requests at once, each with CONTEXT tokens of context. When it is ready, it prints its base URL. It
exits when standard input closes, so it does not outlive its parent process.
"""

import os
import sys

import xllamacpp

model, slots, context = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])

params = xllamacpp.CommonParams()
params.model.path = model
params.model_alias = {"babbler"}
params.n_parallel = slots
params.n_ctx = slots * context
params.cpuparams.n_threads = 1
params.cpuparams_batch.n_threads = 1
params.use_jinja = True
params.endpoint_metrics = True
params.verbosity = 1
# Any free port.
params.port = 0
server = xllamacpp.Server(params)
print(f"{server.listening_address}/v1", flush=True)
sys.stdin.read()
# Exits immediately: the server would wait for requests in flight.
os._exit(0)
