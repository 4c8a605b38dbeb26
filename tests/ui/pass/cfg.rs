use tool_core::{tool, tools};

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

pub(crate) fn main() {
    assert_eq!(tools![system].len(), 1);
}
