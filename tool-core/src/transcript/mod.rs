//! Conversations as readable text or as diagrams.

#[allow(clippy::module_inception, reason = "the folder holds the forms of the type")]
mod transcript;
mod entry;
mod line;
mod mermaid;
mod text;
#[cfg(test)]
mod testing;

pub use self::transcript::Transcript;
