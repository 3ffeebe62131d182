"""The rules of :func:`penstock.doctor.check`: those about one matter are in one module."""
