"""The rules of :func:`penstock.doctor.check`: one file each, named after the rule."""
