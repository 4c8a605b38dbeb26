//! The properties of the fuzz targets for a few texts, so that the targets compile although `.ci/run` does not build them.

#[expect(unreachable_pub, reason = "the targets are a crate of their own")]
#[path = "../../fuzz/lib.rs"]
mod targets;

#[test]
fn the_properties_of_the_fuzz_targets_hold() {
    let texts = [
        "",
        r#"{"number": "3", "list": "[1, 2]", "flag": "true"}"#,
        r#"{"trip": {"name": "a", "stops": [{"nights": 2, "by": {"Boat": {"knots": 1.5}}}]}, "word": "ab"}"#,
        r#"{"type": "object", "properties": {"a": {"type": "string", "minLength": 1}}}"#,
        r#"[1, "2"]"#,
        r#""true""#,
    ];
    for text in texts {
        targets::arguments(text);
        targets::repair(text);
        targets::strict(text);
    }
}
