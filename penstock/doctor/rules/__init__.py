"""The rules of :func:`penstock.doctor.check`: one file each, named by the rule's id."""
