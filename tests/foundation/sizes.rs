//! The sizes of operations: their parts, plus a small constant.

#[path = "../../examples/sizes.rs"]
mod example;

#[test]
fn an_operation_is_no_larger_than_its_parts_and_a_small_constant() {
    let over: Vec<_> = example::table()
        .into_iter()
        .filter(|row| row.operation > row.limit)
        .collect();
    assert!(over.is_empty(), "{over:#?}");
}

#[test]
fn an_operation_that_was_measured_is_there() {
    // An empty table would pass any limit.
    assert!(
        example::table()
            .iter()
            .all(|row| row.operation > 0 && row.limit < 8 * 1024)
    );
}

#[test]
fn a_function_that_captures_nothing_adds_nothing() {
    let table = example::table();
    let size = |chain| table.iter().find(|row| row.chain == chain).unwrap().operation;
    assert_eq!(size("just(1u64).then(f)"), size("just(1u64)"));
    assert_eq!(size("just(1u64).then(f).then(f).then(f).then(f)"), size("just(1u64)"));
}
