//! Conversations as readable text.

#[allow(clippy::module_inception, reason = "the folder holds the form of the type")]
pub(crate) mod transcript;
mod texts;
mod line;
mod text;
#[cfg(test)]
mod testing;

pub(crate) use self::transcript::Transcript;
