mod facade {
    pub mod deep {
        pub use tool_core as renamed;
    }
}

#[facade::deep::renamed::tool(crate = "crate::facade::deep::renamed")]
fn sum(a: f64, b: f64) -> f64 {
    a + b
}

fn main() {
    assert_eq!(facade::deep::renamed::tools![sum].len(), 1);
}
