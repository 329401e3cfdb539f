//! What LLM calls ask for and report.

mod accuracy;
mod laws;
mod requests;
mod streams;
mod usages;
