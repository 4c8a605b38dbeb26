use tool_core::model::Prices;

fn main() {
    Prices::from_toml("currency = \"EUR\"").unwrap();
}
