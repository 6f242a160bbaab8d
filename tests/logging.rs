//! What is logged by default is one thing, whoever says it.

use kinference::app::DEFAULT_LOG;

#[test]
fn the_default_filter_is_the_same_everywhere() {
    assert!(include_str!("../docs/configuration.md").contains(&format!("`{DEFAULT_LOG}`")));
    assert!(include_str!("../charts/kinference/values.yaml").contains(&format!("filter: {DEFAULT_LOG}\n")));
}
