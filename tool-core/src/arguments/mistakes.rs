//! The text that lists all mistakes of a call.

/// How long the account of all mistakes may grow, in bytes; what comes behind that is not told.
pub(crate) const LONGEST_ACCOUNT: usize = 4096;

/// Adds a mistake to an account of them.
#[cold]
pub(crate) fn note(mistakes: &mut String, mistake: &str) {
    if mistakes.len() > LONGEST_ACCOUNT {
        return;
    }
    if !mistakes.is_empty() {
        mistakes.push_str("; ");
    }
    mistakes.push_str(mistake);
    if mistakes.len() > LONGEST_ACCOUNT {
        mistakes.push_str("; and more");
    }
}
