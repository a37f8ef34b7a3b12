//! The README quotes the table of the page on performance.

/// Returns the cells of a row of a table; none for other lines.
fn cells(line: &str) -> Vec<&str> {
    let row = line.strip_prefix("| ").and_then(|line| line.strip_suffix(" |"));
    row.map_or_else(Vec::new, |row| row.split(" | ").collect())
}

#[test]
fn the_readme_shows_the_ratios_of_the_table() {
    let table = include_str!("../../docs/performance.md");
    let mut checked = 0;
    for line in include_str!("../../README.md").lines() {
        let &[case, _, _, ratio] = &cells(line)[..] else {
            continue;
        };
        if !case.contains('/') {
            continue;
        }
        // The first row of a case in the table of results has its time, and the median of the ratios to the peer before the
        // brackets. The last cell has other peers, each with the ratio in brackets.
        let row = table.lines().map(cells).find(|row| row.len() > 6 && row[0] == case);
        let row = row.unwrap_or_else(|| panic!("docs/performance.md has no case {case}"));
        let median = row[4].split_once(" (").map(|(median, _)| median);
        let is_other = row[row.len() - 1].contains(&format!(" ({ratio})"));
        assert!(
            median == Some(ratio) || is_other,
            "the ratio of {case}: {median:?}, not {ratio}"
        );
        checked += 1;
    }
    assert!(checked > 10, "the README has a table of ratios");
}
