"""Serves a model with llama.cpp's own server: serve.py MODEL SLOTS CONTEXT.

It answers so many requests at once, each with so many tokens of context. Its base URL is the first line that is printed, once
requests are taken. It ends with its input, so it does not outlive who started it.
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
# Any port that is free.
params.port = 0
server = xllamacpp.Server(params)
print(f"{server.listening_address}/v1", flush=True)
sys.stdin.read()
# At once: the server would first wait for the requests that are under way.
os._exit(0)
