use tool_core::{assistant, tool, tools};

#[tool]
#[cfg(any())]
fn system() -> Nowhere {
    Nowhere
}

#[cfg(any())]
#[tool]
fn other_system() -> Nowhere {
    Nowhere
}

#[tool]
#[cfg(all())]
fn system() -> &'static str {
    "this one"
}

#[assistant(agent = NothingAgent)]
#[cfg(any())]
trait Nothing {
    #[ask("Nothing.")]
    async fn nothing(&self) -> Nowhere;
}

#[assistant(agent = SomethingAgent)]
trait Something {
    #[cfg(any())]
    #[ask("Nothing.")]
    async fn something(&self) -> Nowhere;

    #[cfg(all())]
    #[ask("Something.")]
    fn something(&self) -> tool_core::agent::Ask;
}

pub(crate) fn main() {
    let _ = |agent: &SomethingAgent| agent.something();
    assert_eq!(tools![system].len(), 1);
}
