mod facade {
    pub(crate) mod deep {
        pub(crate) use tool_core as renamed;
    }
}

#[facade::deep::renamed::tool(crate = "crate::pass::renamed_crate::facade::deep::renamed")]
fn sum(a: f64, b: f64) -> f64 {
    a + b
}

pub(crate) fn main() {
    assert_eq!(facade::deep::renamed::tools![sum].len(), 1);
}
