//! The counts of `scripts/counts`, as a page shows them.

use std::fs;

use crate::report;

/// The instructions and read-modify-writes per unit of each case that was counted.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Counts(Vec<(String, String)>);

/// The title of the column that shows the counts beside the times.
pub const COLUMN: &str = "instructions; read-modify-writes";

const BEGIN: &str = "<!-- counted: begin -->";
const END: &str = "<!-- counted: end -->";

impl Counts {
    /// Reads the table between the two marks of a page. A page without marks has no counts.
    pub fn of_page(page: &str) -> Self {
        let table = page.split_once(BEGIN).and_then(|(_, rest)| rest.split_once(END));
        Counts(
            table
                .map_or("", |(table, _)| table)
                .lines()
                .filter_map(|line| {
                    let mut cells = line.strip_prefix("| `")?.split(" | ");
                    let case = cells.next()?.strip_suffix('`')?;
                    let (_unit, instructions, writes) = (cells.next()?, cells.next()?, cells.next()?);
                    Some((case.to_owned(), format!("{instructions}; {writes}")))
                })
                .collect(),
        )
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the counts of a case, as the cell of a table.
    pub fn of(&self, case: &str) -> &str {
        let mut counts = self.0.iter().filter(|(name, _)| name == case);
        counts.next().map_or("", |(_, counts)| counts)
    }
}

/// Replaces the column of counts in the table of results of the page at `path` with the counts on that page.
pub fn recount_page(path: &str) -> Result<(), String> {
    let page = fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))?;
    let page = recount(&page).ok_or(format!("{path}: no table of results with a column {COLUMN}"))?;
    fs::write(path, page).map_err(|error| format!("{path}: {error}"))
}

/// Returns the page with the column replaced, or `None` if there is no such column.
fn recount(page: &str) -> Option<String> {
    let counts = Counts::of_page(page);
    let (before, table, after) = report::measured(page)?;
    let title = table.lines().find(|line| line.contains(COLUMN))?;
    let column = title.split('|').position(|cell| cell.trim() == COLUMN)?;
    let recounted = |line: &str| {
        let mut cells: Vec<String> = line.split('|').map(str::to_owned).collect();
        // The first row of a case has its name in code. The other rows have neither a name nor counts.
        let name = cells.get(1).map_or("", |cell| cell.trim());
        let case = name.strip_prefix('`').and_then(|name| name.strip_suffix('`'));
        if let Some(case) = case {
            cells[column] = format!(" {} ", counts.of(case));
        }
        cells.join("|")
    };
    let lines: Vec<String> = table.split('\n').map(recounted).collect();
    Some(format!("{before}{}{after}", lines.join("\n")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_two_tables_of_the_page_on_performance_show_the_same_counts() {
        let page = include_str!("../../docs/performance.md");
        let counts = Counts::of_page(page);
        let (_, results, _) = report::measured(page).unwrap();
        let counted = |case: &str| results.contains(&format!("| `{case}` |"));
        assert!(counts.0.iter().filter(|(case, _)| counted(case)).count() > 10);
        let recounted = recount(page).unwrap();
        for (line, expected) in page.lines().zip(recounted.lines()) {
            assert_eq!(line, expected, "write it by: bowline-bench recount docs/performance.md");
        }
        assert_eq!(page, recounted);
    }

    #[test]
    fn only_the_column_of_counts_is_replaced() {
        let page = |old: [&str; 2]| {
            let [first, second] = old;
            format!(
                "{BEGIN}\n| `a/b` | hop | 280 | 0.25 | 0.00 |\n{END}\n| `a/b` | x |\n<!-- measured: begin -->\n\nA CPU.\n\n\
                 | case | measured | {COLUMN} | others |\n|---|---|---|---|\n| `a/b` | time |{first}| x 1 (2) |\n|  | cpu |  |  |\n\
                 | `a/c` | time |{second}|  |\n\n<!-- measured: end -->\n| `a/b` | x | y |\n"
            )
        };
        let recounted = recount(&page([" 300; 1.00 ", " 7; 7 "])).unwrap();
        assert_eq!(recounted, page([" 280; 0.25 ", "  "]));
        assert_eq!(recount(&recounted).unwrap(), recounted);
        assert!(recount("a page without results").is_none());
    }

    #[test]
    fn the_table_of_a_page_is_read() {
        let page = format!(
            "text\n{BEGIN}\n\n| case | per | instructions | read-modify-writes | allocations |\n|---|---|---|---|---|\n\
             | `hop/inside` | hop | 280 | 0.00 | 0.00 |\n| `join/fib` | node | 51 | 0.50 | 0.00 |\n\n{END}\n| `other` | a | 1 | 2 | 3 |\n"
        );
        let counts = Counts::of_page(&page);
        assert_eq!(counts.of("hop/inside"), "280; 0.00");
        assert_eq!(counts.of("join/fib"), "51; 0.50");
        assert_eq!(counts.of("other"), "");
    }

    #[test]
    fn a_page_without_marks_has_no_counts() {
        assert!(Counts::of_page("| `hop/inside` | hop | 280 | 0.00 | 0.00 |").is_empty());
    }
}
