//! Conversations as readable text.

#[allow(clippy::module_inception, reason = "the folder holds the form of the type")]
mod transcript;
mod texts;
mod line;
mod text;
#[cfg(test)]
mod testing;

pub use self::transcript::Transcript;
