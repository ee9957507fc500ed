"""The child process. `python child.py MODULE:CLASS name=value...` runs one subject once."""

import importlib
import json
import sys
from dataclasses import asdict
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parent.parent)
    from measuring.spec import Spec

    module, _, name = sys.argv[1].partition(":")
    subject = getattr(importlib.import_module(module), name)()
    print(json.dumps(asdict(subject.run(Spec.parse(sys.argv[2:])))), flush=True)
