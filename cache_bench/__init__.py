"""What is measured and how an engine is reached: engines, scenarios, prompts, profiles and the experiment."""
