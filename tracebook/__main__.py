"""`python -m tracebook` is `tracebook`."""

from __future__ import annotations

from tracebook.cli import main

raise SystemExit(main())
