//! The report of all mistakes in the arguments of a call.

/// The length in bytes from which on a report is truncated.
pub(crate) const MAX_REPORT_BYTES: usize = 4096;

/// Appends a mistake to a report.
#[cold]
pub(crate) fn add_mistake(report: &mut String, mistake: &str) {
    if report.len() > MAX_REPORT_BYTES {
        return;
    }
    if !report.is_empty() {
        report.push_str("; ");
    }
    report.push_str(mistake);
    if report.len() > MAX_REPORT_BYTES {
        report.push_str("; and more");
    }
}
