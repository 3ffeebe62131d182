"""A diagnosis as text, JSON, a page, annotations.

Where to find what:

- JSON: ``json_report.py`` (its fields: ``docs/doctor.md``); annotations: ``github_report.py``; a page:
  ``html_report.py``
"""
