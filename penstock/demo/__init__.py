"""Pictures for the examples and tutorials: photographs in classes, and shapes with exact annotations.

Scripts in ``examples`` call :func:`~penstock.demo.photographs.write_photographs` and
:func:`~penstock.demo.shapes.write_shapes`. No other part of penstock imports this package.
"""
