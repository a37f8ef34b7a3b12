//! The README quotes the table of the page on performance.

/// Returns the cells of a row of a table; none for other lines.
fn cells(line: &str) -> Vec<&str> {
    let row = line.strip_prefix("| ").and_then(|line| line.strip_suffix(" |"));
    row.map_or_else(Vec::new, |row| row.split(" | ").collect())
}

/// Returns the name and the rest of a cell: `tokio's JoinSet` and `565` for `tokio's JoinSet 565`.
fn named(cell: &str) -> (&str, &str) {
    cell.rsplit_once(' ').unwrap_or((cell, ""))
}

/// Returns whether a cell of the README speaks of the peer with this name. It may say more, and `tokio` for `tokio's JoinSet`.
fn speaks_of(cell: &str, name: &str) -> bool {
    let word = name.split(' ').find(|word| word.len() > 1);
    word.is_some_and(|word| cell.contains(word.trim_end_matches("'s")))
}

#[test]
fn the_readme_shows_the_ratios_of_the_table() {
    let table = include_str!("../../docs/performance.md");
    let readme = include_str!("../../README.md").lines();
    let rows = readme.skip_while(|line| *line != "| case | work | compared with | ratio |");
    let rows: Vec<_> = rows.skip(2).take_while(|line| !line.is_empty()).collect();
    assert!(rows.len() > 10, "the README has a table of ratios");
    for row in rows {
        let &[case, _, compared_with, ratio] = &cells(row)[..] else {
            panic!("not a row of four cells: {row}");
        };
        // The first row of a case in the table of results has its time, the peer with its value, and the median of the ratios to the peer
        // before the brackets. The last cell has other peers, each with the ratio in brackets.
        let row = table.lines().map(cells).find(|row| row.len() > 6 && row[0] == case);
        let row = row.unwrap_or_else(|| panic!("docs/performance.md has no case {case}"));
        let median = row[4].split_once(" (").map(|(median, _)| median);
        let first = (named(row[3]).0, median.unwrap_or_default());
        let others = row[row.len() - 1].trim_end_matches(" |").split(", ").map(|other| {
            let (peer, ratio) = named(other);
            (named(peer).0, ratio.trim_matches(['(', ')']))
        });
        let mut peers = std::iter::once(first).chain(others);
        let peer = peers.find(|(name, _)| speaks_of(compared_with, name));
        let (name, measured) = peer.unwrap_or_else(|| panic!("{case} is not compared with {compared_with}"));
        assert_eq!(ratio, measured, "the ratio of {case} to {name}");
    }
}

#[test]
fn the_readme_names_the_machine_of_the_table() {
    let table = include_str!("../../docs/performance.md");
    // `AMD EPYC, family 26 model 2 (2 cores), ..`
    let mut lines = table.lines().skip_while(|line| !line.contains("measured: begin"));
    let machine = lines
        .find(|line| line.contains(" cores), "))
        .expect("the machine of the table");
    let (name, rest) = machine.split_once(", family ").expect("a family of processors");
    let (family, rest) = rest.split_once(' ').expect("a model");
    let (_, rest) = rest.split_once('(').expect("the number of cores");
    let cores = match rest.split_once(' ').expect("the number of cores").0 {
        "2" => "two",
        "4" => "four",
        "8" => "eight",
        other => other,
    };
    let expected = format!("on {cores} cores of an {name} (family {family})");
    assert!(
        include_str!("../../README.md").contains(&expected),
        "not in the README: {expected}"
    );
}
