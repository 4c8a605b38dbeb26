#![no_implicit_prelude]
#![allow(dead_code)]

/// Sums two numbers.
#[::tool_core::tool("Sums two numbers", name = "add")]
fn sum(a: f64, #[param("the other", required = false)] b: ::std::option::Option<f64>) -> f64 {
    a + b.unwrap_or(0.0)
}

#[::tool_core::tool]
async fn words(text: &str) -> ::std::result::Result<usize, ::std::string::String> {
    ::std::result::Result::Ok(text.len())
}

struct Calculator;

#[::tool_core::toolbox]
impl Calculator {
    #[tool("Returns the square root")]
    fn square_root(self: ::std::sync::Arc<Self>, x: f64) -> f64 {
        x.sqrt()
    }

    #[tool("Returns the cube root", blocking)]
    fn cube_root(&self, x: f64, #[inject] context: &::tool_core::ToolContext) -> f64 {
        let _ = context;
        x.cbrt()
    }
}

#[::tool_core::assistant("You plan trips.", agent = PlannerAgent)]
trait Planner {
    #[ask("Plan a day in {city}, {days:?}.", tools(sum), temperature = 0.5, max_turns = 1)]
    async fn plan(
        &self,
        city: &str,
        days: u8,
    ) -> ::std::result::Result<::std::string::String, ::tool_core::RunError>;

    #[ask]
    fn story(&self, #[conversation] id: &str, city: &str) -> ::tool_core::agent::Ask;

    async fn words(&self) -> usize {
        2
    }
}

pub(crate) fn main() {
    let set = ::tool_core::tools![sum, words];
    ::std::assert_eq!(set.len(), 2);
    let pattern = ::tool_core::call!(sum { a: 1.. | None, b: |b: f64| b > 0.0, .. }).ok();
    ::std::assert_eq!(pattern.tool_name(), "add");
    let set = <::tool_core::ToolSet as ::std::convert::From<Calculator>>::from(Calculator);
    ::std::assert_eq!(set.len(), 2);
}
