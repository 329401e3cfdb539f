"""What the examples serve or import: `make examples` runs the files beside this folder only."""
