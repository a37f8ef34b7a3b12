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

/// A figure of the table of results.
struct Figure {
    case: String,
    metric: String,
    /// The peer of a ratio, or `target` for a value with a limit of its own.
    against: String,
    /// The cell of the README: the figure, and the target if it is missed.
    cell: String,
    missed: bool,
}

/// Returns the figures of one row: the ratios to each peer, and the library's value if that has missed a limit.
fn figures(case: &str, row: &[&str]) -> Vec<Figure> {
    // The peer with its value, and the median of the ratios to the peer before the brackets. The last cell has other peers, each with
    // the ratio in brackets.
    let median = row[4].split_once(" (").map_or("", |(median, _)| median);
    let others = row[row.len() - 1]
        .trim_end_matches(" |")
        .split(", ")
        .filter_map(|other| {
            let (peer, ratio) = other.rsplit_once(" (")?;
            Some((named(peer).0, ratio.trim_end_matches(')')))
        });
    let ratios = std::iter::once((named(row[3]).0, median)).chain(others);
    let limits: Vec<&str> = row[5].split("; ").collect();
    let missed = limits.iter().zip(row[6].split("; "));
    let missed: Vec<&str> = missed
        .filter(|(_, word)| *word == "missed")
        .map(|(limit, _)| *limit)
        .collect();
    let figure = |against: &str, value: &str, target: Option<&str>| Figure {
        case: case.to_owned(),
        metric: row[1].split_once(", ").map_or(row[1], |(metric, _)| metric).to_owned(),
        against: against.to_owned(),
        cell: target.map_or(value.to_owned(), |target| format!("{value} (target {target})")),
        missed: target.is_some(),
    };
    let mut figures = Vec::new();
    for (index, (peer, ratio)) in ratios.enumerate() {
        // `ratio ≤ 0.1` is a limit for the first peer, `≤ 1.1 of rayon's scope` for that one, `≤ 1.5 of each` for all.
        let target = missed.iter().find_map(|limit| match limit.split_once(" of ") {
            Some((limit, "each")) => {
                let limit = limit.trim_start_matches("≤ ");
                (ratio.parse::<f64>().ok()? >= limit.parse().ok()?).then_some(limit)
            }
            Some((limit, name)) => (name == peer).then_some(limit.trim_start_matches("≤ ")),
            None => limit.strip_prefix("ratio ≤ ").filter(|_| index == 0),
        });
        figures.push(figure(peer, ratio, target));
    }
    // `≥ 1.8` and `≤ 1000` are limits for the value itself.
    let own = |limit: &&&str| !limit.starts_with("ratio") && !limit.contains(" of ");
    figures.extend(
        missed
            .iter()
            .find(own)
            .map(|limit| figure("target", row[2], Some(*limit))),
    );
    figures
}

/// Returns whether a row of the README shows a figure of the page: it names the case and the peer, and the metric if that is not the
/// first of the case.
fn shows(row: &[&str], figure: &Figure, first: bool) -> bool {
    row[0] == figure.case && speaks_of(row[2], &figure.against) && (first || row[1].contains(&figure.metric))
}

/// The README shows ratios of the table of results, with the target beside a ratio that misses it. It shows all that miss theirs.
#[test]
fn the_readme_shows_the_ratios_of_the_table_and_marks_those_that_miss_their_target() {
    let table = include_str!("../../docs/performance.md").lines();
    let readme = include_str!("../../README.md").lines();
    let rows = readme.skip_while(|line| *line != "| case | work | compared with | ratio |");
    let rows: Vec<_> = rows.skip(2).take_while(|line| !line.is_empty()).map(cells).collect();
    assert!(rows.len() > 10, "the README has a table of ratios");
    let table = table.skip_while(|line| !line.starts_with("| case | measured |"));
    let mut case = String::new();
    let mut all: Vec<(Figure, bool)> = Vec::new();
    for line in table.skip(2).take_while(|line| !line.is_empty()) {
        let row = cells(line);
        assert!(row.len() > 6, "not a row of results: {line}");
        // Only the first row of a case has its name.
        let first = !row[0].is_empty();
        if first {
            case = row[0].to_owned();
        }
        all.extend(figures(&case, &row).into_iter().map(|figure| (figure, first)));
    }
    for row in &rows {
        let &[case, _, compared_with, ratio] = &row[..] else {
            panic!("not a row of four cells: {row:?}");
        };
        // A row that names another metric than the first shows that one, and a row with the whole name of a peer that peer.
        let mut shown: Vec<_> = all
            .iter()
            .filter(|(figure, first)| shows(row, figure, *first))
            .collect();
        shown.sort_by_key(|(figure, first)| (*first, !compared_with.contains(&figure.against)));
        let (figure, _) = shown
            .first()
            .unwrap_or_else(|| panic!("docs/performance.md does not compare {case} with {compared_with}"));
        assert_eq!(
            ratio, figure.cell,
            "write the right one as the ratio of {case} to {compared_with} into the README"
        );
    }
    for (figure, first) in all.iter().filter(|(figure, _)| figure.missed) {
        let Figure {
            case,
            metric,
            against,
            cell,
            ..
        } = figure;
        let shown = rows.iter().any(|row| shows(row, figure, *first) && row[3] == cell);
        assert!(
            shown,
            "{case} misses a target: write into the README's table: | {case} | … ({metric}) | {against} | {cell} |"
        );
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
