"""Makes short-term keys of Bedrock with AWS's own generator, at fixed times: keys.py prints JSON."""

import base64
import datetime
import json

import botocore.auth
from aws_bedrock_token_generator import _generate_token
from botocore.credentials import Credentials

EXAMPLE_SECRET = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
CASES = [
    ("20261128T212345Z", "us-east-1", "AKIDEXAMPLE", EXAMPLE_SECRET, None, 43200),
    ("20240229T000000Z", "eu-central-1", "ASIDEXAMPLE", "secret+/=~*'", "FwoGZXIvYXdzE/+session=token~x==", 900),
    ("19700101T000001Z", "ap-southeast-2", "AKIDEXAMPLE", "s", "t", 1),
    ("20991231T235959Z", "us-gov-west-1", "AKIDEXAMPLE", EXAMPLE_SECRET, None, 3600),
]
vectors = []
for stamp, region, key, secret, session, seconds in CASES:
    time = datetime.datetime.strptime(stamp, "%Y%m%dT%H%M%SZ")
    botocore.auth.get_current_datetime = lambda *_, time=time, **__: time
    made = _generate_token(Credentials(key, secret, session), region, seconds)
    url = base64.b64decode(made.removeprefix("bedrock-api-key-")).decode()
    assert stamp in url, url
    vectors.append(
        {
            "unix_seconds": int((time - datetime.datetime(1970, 1, 1)).total_seconds()),
            "region": region,
            "access_key_id": key,
            "secret_access_key": secret,
            "session_token": session,
            "expires_in": seconds,
            "url": url,
            "key": made,
        }
    )
source = "aws-bedrock-token-generator 1.1.0 with botocore 1.44.8, both from PyPI, at fixed times: tests/endpoints/clouds/sdk/keys.py"
print(json.dumps({"source": source, "vectors": vectors}, indent=1))
