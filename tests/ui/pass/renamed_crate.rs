mod facade {
    pub(crate) mod deep {
        pub(crate) use tool_core as renamed;
    }
}

#[facade::deep::renamed::tool(crate = "crate::pass::renamed_crate::facade::deep::renamed")]
fn sum(a: f64, b: f64) -> f64 {
    a + b
}

#[facade::deep::renamed::assistant(agent = SumsAgent, crate = "crate::pass::renamed_crate::facade::deep::renamed")]
trait Sums {
    #[ask("What is {a} plus {b}?", tools(sum))]
    fn ask_sum(&self, a: f64, b: f64) -> facade::deep::renamed::agent::Ask;
}

fn ask_sum<S: Sums>(agent: &S) {
    drop(agent.ask_sum(1.0, 2.0));
}

pub(crate) fn main() {
    let _: fn(&SumsAgent) = ask_sum;
    assert_eq!(facade::deep::renamed::tools![sum].len(), 1);
    assert_eq!(facade::deep::renamed::call!("sum" { a: 1, b: [_, ..] | { c: 2 } | None }).tool_name(), "sum");
}
