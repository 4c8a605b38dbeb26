//! Reads the answers of runs.

use crate::agent::RunDriver;
use crate::run::RunErrorKind;

impl RunDriver {
    /// Drives the run until it has an answer that can be read, or ends without one. An answer of a wrong form is sent back to the
    /// model.
    pub(in crate::agent) async fn drive_to_answer<T>(
        &mut self,
        read: impl Fn(&str) -> Result<T, String>,
    ) -> Result<Option<T>, RunErrorKind> {
        loop {
            self.drive_to_end().await?;
            if let Some(read) = self.read_answer(&read)? {
                return Ok(read);
            }
        }
    }

    /// Reads the answer of a run that is done, which has none if it stopped. Returns `None` if the answer was sent back to the model.
    pub(in crate::agent) fn read_answer<T>(
        &mut self,
        read: impl Fn(&str) -> Result<T, String>,
    ) -> Result<Option<Option<T>>, RunErrorKind> {
        let hint = if self.performer.tools.has_answer_tool() {
            "; give your answer by calling `final_answer`"
        } else {
            ""
        };
        let Some(text) = self.run.answer_text() else { return Ok(Some(None)) };
        // A refusal is no answer of any type, although its text, which is empty, could be read as one.
        let answer = if self.run.refusal().is_some() { Err(String::new()) } else { read(&text) };
        match answer {
            Ok(answer) => Ok(Some(Some(answer))),
            Err(why) => {
                self.change_run().reject_answer_with_hint(&why, hint).map_err(RunErrorKind::Step)?;
                Ok(None)
            }
        }
    }
}
