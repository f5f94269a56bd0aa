#!/usr/bin/env bash
# Asks a model a question with curl: examples/chat.sh MODEL QUESTION
set -euo pipefail

body=$(python3 -c '
import json, sys
print(json.dumps({"model": sys.argv[1], "messages": [{"role": "user", "content": sys.argv[2]}]}))
' "$1" "$2")
curl --silent --show-error --fail-with-body "${LORAGATE_BASE_URL:-http://127.0.0.1:8000}/v1/chat/completions" \
    -H "Authorization: Bearer $LORAGATE_API_KEY" -H "Content-Type: application/json" -d "$body"
