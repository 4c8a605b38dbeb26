//! Blanket traits of the user's whose items have the names that generated code would use.

use tool_core::{RunError, assistant, tool, tools};

#[expect(dead_code, reason = "it is only there to get in the way")]
trait Everything: Sized {
    const IS_REQUIRED: u8 = 0;

    fn kind(self) {}
    fn convert(self) {}
    fn take(self) {}
    fn of(self) {}
    fn write(self) {}
    fn receive(self) {}
    fn context(self) {}
    fn conversation(self) {}
}

impl<T> Everything for T {}

#[tool]
fn sum(a: f64, b: Option<f64>) -> f64 {
    a + b.unwrap_or(0.0)
}

#[tool]
async fn path(path: &std::path::Path) -> Result<usize, String> {
    Ok(path.components().count())
}

struct User;

#[assistant(agent = ChatAgent)]
trait Chat {
    #[ask("{kind} {text}")]
    async fn chat(
        &self,
        #[conversation] id: String,
        #[inject] user: User,
        kind: u8,
        text: String,
    ) -> Result<Vec<u8>, RunError>;
}

pub(crate) fn main() {
    let _ = <ChatAgent as Chat>::chat;
    assert_eq!(tools![sum, path].len(), 2);
}
