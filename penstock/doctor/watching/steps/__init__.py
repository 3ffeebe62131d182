"""What a training script does with its batches."""
