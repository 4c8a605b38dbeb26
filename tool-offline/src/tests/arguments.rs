//! Arguments that are filled in from the words of a question.

use serde_json::Value;

use super::{Question, columns, tool};

/// The rest of "Book a table …", the parameters, and the arguments; `-` if it is not called.
const ARGUMENTS: &str = r#"
with people = 4 and hour 19 | {"hour": "integer", "people": "integer"} | {"hour": 19, "people": 4}
for twenty-five guests | {"guests": "integer"} | {"guests": 25}
for a dozen people | {"people": "integer"} | {"people": 12}
for 1,000 people at 1e5 | {"people": "integer", "price": "number"} | {"people": 1000, "price": 100000.0}
with a discount of 15% | {"discount": "number"} | {"discount": 15}
for 2.5 people | {"people": "integer", "weight?": "number"} | -
at “Chez Léon” | {"name": "string"} | {"name": "Chez Léon"}
at 「花」 | {"name": "string"} | {"name": "花"}
for a@b.org at New York | {"place": "string", "contact": "email"} | {"place": "New York", "contact": "a@b.org"}
on 2026-03-01 at 19:30 | {"time": "string", "day": "date"} | {"time": "19:30", "day": "2026-03-01"}
on 2026-03-01 | {"date": "string"} | {"date": "2026-03-01"}
outside | {"place": {"type": "string", "enum": ["Inside", "Outside"]}} | {"place": "Outside"}
on the terrace | {"at?": {"oneOf": [{"const": "inside"}, {"const": "terrace"}]}} | {"at": "terrace"}
with breakfast | {"breakfast": "boolean"} | {"breakfast": true}
without breakfast | {"breakfast": "boolean", "dinner?": "boolean"} | {"breakfast": false}
for 3 | {"people": {"type": ["integer", "null"]}} | {"people": 3}
for 3 | {"people?": {"anyOf": [{"type": "null"}, {"type": "integer"}]}} | {"people": 3}
in Rome | {"city": "string", "people": {"type": ["integer", "null"]}} | {"city": "Rome", "people": null}
in Rome | {"at": {"properties": {"city": {"type": "string"}, "zip": {"type": ["number", "null"]}}, "required": ["city", "zip"]}} | {"at": {"city": "Rome", "zip": null}}
in Rome for 3 | {"city": "string", "people?": "integer", "note?": "string"} | {"city": "Rome", "people": 3}
for guests Alice, Bob and Eve Smith | {"guests": "strings"} | {"guests": ["Alice", "Bob", "Eve Smith"]}
with numbers 1, 2 and 3 | {"numbers": "integers"} | {"numbers": [1, 2, 3]}
in the city berlin, phone number 030123 | {"phone": "string", "city": "string"} | {"phone": "030123", "city": "berlin"}
from Rome to Paris | {"to_city": "string", "from_city": "string"} | {"to_city": "Paris", "from_city": "Rome"}
at https://a.org/b?c=1 | {"link": "string"} | {"link": "https://a.org/b?c=1"}
in Rome | {"at": {"properties": {"city": {"type": "string"}}, "required": ["city"]}} | {"at": {"city": "Rome"}}
in Rome | {"city": "string", "at?": {"properties": {"x": {"type": "number"}}, "required": ["x"]}} | {"city": "Rome"}
"#;

#[test]
fn fills_arguments_by_type_and_name() {
    for line in ARGUMENTS.trim().lines() {
        let [question, parameters, expected] = columns(line);
        let book = tool("book_table", "Books a table", serde_json::from_str(parameters).unwrap());
        let (calls, _) = Question::new(&format!("Book a table {question}"), &[book]).run(&[]);
        let expected =
            serde_json::from_str(expected).map_or(String::new(), |it: Value| format!("book_table {it}"));
        assert_eq!(calls, expected, "{question}");
    }
}
