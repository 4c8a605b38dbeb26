//! The size of what the engine stores. A larger value would be refused by the server, and its step tried again without end.

use std::io::{self, Write};

use serde::Serialize;
use tool_core::tool::{ToolError, ToolExecution};

/// The largest value by default. The server sends 32 MiB of one invocation at a time, counts a value until it sends the next one, and
/// never goes on if the two have more.
pub(crate) const MAX_BYTES: usize = 15 * 1024 * 1024;

/// Returns an error that names the value if its JSON is larger than the limit.
pub(crate) fn check<T: Serialize>(what: &str, value: &T, max_bytes: usize) -> Result<(), String> {
    match count(value) {
        Ok(bytes) if bytes <= max_bytes => Ok(()),
        Ok(bytes) => {
            Err(format!("{what} has {bytes} bytes, more than the {max_bytes} that the engine takes"))
        }
        Err(error) => Err(format!("{what} has no JSON form: {error}")),
    }
}

/// Returns the size of the JSON of a value, or 0 if it has none.
pub(crate) fn size<T: Serialize>(value: &T) -> usize {
    count(value).unwrap_or_default()
}

fn count<T: Serialize>(value: &T) -> serde_json::Result<usize> {
    let mut bytes = Counter(0);
    serde_json::to_writer(&mut bytes, value).map(|()| bytes.0)
}

/// Divides values into batches that the engine takes.
pub(crate) fn batches<T: Serialize>(values: Vec<T>, max_bytes: usize) -> Vec<Vec<T>> {
    let (mut batches, mut bytes) = (Vec::<Vec<T>>::new(), 0);
    for value in values {
        let size = size(&value) + 1;
        match batches.last_mut() {
            Some(batch) if bytes + size <= max_bytes => {
                batch.push(value);
                bytes += size;
            }
            _ => {
                batches.push(vec![value]);
                bytes = size;
            }
        }
    }
    batches
}

/// Replaces an output that is too large by an error that the model reads.
pub(crate) fn limited(execution: ToolExecution, max_bytes: usize) -> ToolExecution {
    match check("the output of the tool", &execution, max_bytes) {
        Ok(()) => execution,
        Err(reason) => {
            let error = ToolError::fatal(format!(
                "{reason}; limit it with `max_output_chars`, or return a reference"
            ));
            let replaced = ToolExecution::new(execution.call().clone(), Err(error));
            match execution.started_at() {
                Some(started) => replaced.with_timing(started, execution.duration()),
                None => replaced,
            }
        }
    }
}

struct Counter(usize);

impl Write for Counter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
