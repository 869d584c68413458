extern crate std;

use super::*;
use crate::split::Path;
use proptest::prelude::*;
use std::{vec, vec::Vec};

/// The paper's two devices alone, at 64 KiB: (in flight, submitters, cache disk, back end), in the unit of its table.
/// NetCAS, published with its code; the cells at all and at nothing sent to the cache.
const PUBLISHED: [(u32, u32, u32, u32); 36] = [
    (1, 1, 53_984, 2_472),
    (1, 2, 88_371, 4_583),
    (1, 4, 112_400, 8_586),
    (1, 8, 108_374, 16_671),
    (1, 16, 77_575, 34_698),
    (1, 32, 62_862, 53_738),
    (2, 1, 53_423, 4_855),
    (2, 2, 87_272, 9_060),
    (2, 4, 112_389, 16_882),
    (2, 8, 108_410, 33_172),
    (2, 16, 77_449, 53_737),
    (2, 32, 62_554, 53_737),
    (4, 1, 53_449, 14_847),
    (4, 2, 89_012, 18_430),
    (4, 4, 112_349, 39_929),
    (4, 8, 108_311, 53_731),
    (4, 16, 77_538, 53_730),
    (4, 32, 62_625, 53_737),
    (8, 1, 52_615, 44_210),
    (8, 2, 88_537, 52_635),
    (8, 4, 111_967, 53_703),
    (8, 8, 108_082, 53_723),
    (8, 16, 77_806, 53_730),
    (8, 32, 63_005, 53_738),
    (16, 1, 50_694, 52_807),
    (16, 2, 86_238, 53_721),
    (16, 4, 111_804, 53_706),
    (16, 8, 108_562, 53_724),
    (16, 16, 78_259, 53_731),
    (16, 32, 64_377, 53_736),
    (32, 1, 50_660, 53_656),
    (32, 2, 86_952, 53_720),
    (32, 4, 111_696, 53_690),
    (32, 8, 108_407, 53_721),
    (32, 16, 79_036, 53_736),
    (32, 32, 64_519, 53_735),
];

fn point(block_bytes: u32, in_flight: u32, submitters: u32) -> Point {
    Point { block_bytes, in_flight, submitters }
}

fn published(points: impl Iterator<Item = Point>) -> Profile {
    let rows = points.filter_map(|at| {
        let row = PUBLISHED.iter().find(|row| at == point(64 << 10, row.0, row.1))?;
        Some(Row::measured(at, [f64::from(row.2), f64::from(row.3)]))
    });
    Profile::from_rows(rows).unwrap()
}

fn share(profile: &Profile, at: Point) -> f64 {
    let [disk, backend] = [Path::DISK, Path::BACKEND].map(|path| profile.rate(path, at).unwrap());
    disk / (disk + backend)
}

fn median_and_worst(mut errors: Vec<f64>) -> (f64, f64) {
    errors.sort_by(f64::total_cmp);
    (errors[errors.len() / 2], errors[errors.len() - 1])
}

#[test]
fn the_papers_grid_has_fifty_points_and_the_quick_one_about_half() {
    assert_eq!((full_points().count(), quick_points().count()), (50, 24));
    assert!(quick_points().all(|quick| full_points().any(|full| full == quick)));
}

/// The figures of the module doc of the grid.
#[test]
fn a_quick_profile_is_close_to_the_full_one() {
    let (full, mut quick) = (published(full_points()), published(quick_points()));
    assert_eq!(quick.rows().count(), 12);
    quick.fill();
    assert_eq!(quick.rows().count(), 25);
    let interpolated: Vec<Point> =
        quick.rows().filter(|row| row.source == Source::Interpolated).map(|row| row.point).collect();
    let rates = [Path::DISK, Path::BACKEND].map(|path| {
        interpolated
            .iter()
            .map(move |at| (path, *at))
            .map(|(path, at)| (quick.rate(path, at).unwrap() / full.rate(path, at).unwrap() - 1.0).abs())
    });
    let shares = interpolated.iter().map(|at| (share(&quick, *at) - share(&full, *at)).abs());
    let (median, worst) = median_and_worst(rates.into_iter().flatten().collect());
    let (median_share, worst_share) = median_and_worst(shares.collect());
    assert!(median < 0.115 && worst < 0.255, "{median} {worst}");
    assert!(median_share < 0.0235 && worst_share < 0.0515, "{median_share} {worst_share}");
}

#[test]
fn beyond_the_grid_the_nearest_point_answers() {
    let full = published(full_points());
    assert_eq!(full.rate(Path::DISK, point(64 << 10, 32, 32)), full.rate(Path::DISK, point(64 << 10, 16, 16)));
    assert_eq!(full.rate(Path::DISK, point(1 << 20, 1, 3)), full.rate(Path::DISK, point(64 << 10, 1, 4)));
    assert_eq!(Profile::new().rate(Path::DISK, point(4_096, 1, 1)), None);
}

#[test]
fn a_load_is_read_from_a_control_period() {
    let mut tick = Tick { submitters: 4, ..Tick::default() };
    assert_eq!(Point::of(&tick), None);
    tick.paths[0] = PathTick { requests: 10, bytes: 81_920, in_flight: 9.0, ..PathTick::default() };
    tick.paths[1] = PathTick { requests: 10, bytes: 81_920, in_flight: 0.4, ..PathTick::default() };
    assert_eq!(Point::of(&tick), Some(point(8_192, 2, 4)));
    assert_eq!(Point::of_path(&tick.paths[0], 4), Some(point(8_192, 2, 4)));
    assert_eq!(Point::of_path(&tick.paths[1], 4), None);
    tick.paths[1].in_flight = 2.0;
    assert_eq!(Point::of_path(&tick.paths[1], 4), Some(point(8_192, 1, 2)));
}

#[test]
fn an_observation_appends_a_point_and_then_moves_it() {
    let mut profile = published(full_points());
    profile.observe(Path::BACKEND, point(256 << 10, 5, 7), 1_000.0);
    let row = profile.rows().last().unwrap();
    assert_eq!((row.point, row.source), (point(256 << 10, 4, 8), Source::Observed));
    assert_eq!(row.bytes_per_second, [0.0, 1_000.0]);
    profile.observe(Path::BACKEND, point(256 << 10, 4, 8), 1_800.0);
    assert_eq!(profile.rate(Path::BACKEND, point(256 << 10, 4, 8)), Some(1_012.5));
    // The cache disk was not observed there: the nearest that knows it answers.
    assert_eq!(profile.rate(Path::DISK, point(256 << 10, 4, 8)), profile.rate(Path::DISK, point(64 << 10, 4, 8)));
    assert_eq!(profile.rows().count(), 26);
}

#[test]
fn observations_push_out_the_oldest_of_them_and_never_the_grid() {
    let mut profile = Profile::from_rows(full_points().map(|at| Row::measured(at, [2.0, 1.0]))).unwrap();
    for nth in 0..1_000_u32 {
        profile.observe(Path::DISK, point(4_096 << (nth % 11), 32 << (nth / 11 % 8), 1), f64::from(nth + 1));
    }
    assert_eq!(profile.rows().count(), POINTS_MAX);
    assert!(full_points().all(|at| profile.rows().any(|row| row.point == at && row.source == Source::Measured)));
    let newest = (1_000 - 78..1_000_u32).map(|nth| point(4_096 << (nth % 11), 32 << (nth / 11 % 8), 1));
    assert!(newest.into_iter().all(|at| profile.rows().any(|row| row.point == at)));
}

#[test]
fn rows_that_cannot_be_are_refused_by_number() {
    let row = Row::measured(point(4_096, 1, 1), [1.0, 1.0]);
    let refused = |rows: Vec<Row>| Profile::from_rows(rows).unwrap_err();
    assert_eq!(refused(vec![row, row]), (1, RowError::Twice));
    assert_eq!(refused(vec![Row::measured(point(0, 1, 1), [1.0, 1.0])]), (0, RowError::Invalid));
    for rate in [f64::NAN, f64::INFINITY, -1.0, 1e-320] {
        assert_eq!(refused(vec![Row { bytes_per_second: [1.0, rate], ..row }]), (0, RowError::Invalid));
    }
    let many = (1..=129).map(|n| Row::measured(point(4_096, n, 1), [1.0, 1.0])).collect();
    assert_eq!(refused(many), (128, RowError::TooMany));
}

#[test]
fn a_path_that_is_slower_for_good_is_slower_everywhere() {
    let mut profile = published(full_points());
    let before = profile.clone();
    profile.scale(Path::BACKEND, 0.5);
    for (row, was) in profile.rows().zip(before.rows()) {
        assert_eq!(row.bytes_per_second, [was.bytes_per_second[0], was.bytes_per_second[1] * 0.5]);
    }
}

proptest! {
    #[test]
    fn rows_come_back_as_they_were(rates in prop::collection::vec((0.0..1e12_f64, 1.0..1e12_f64), 50)) {
        let rows: Vec<Row> = full_points().zip(rates).map(|(at, rates)| Row::measured(at, rates.into())).collect();
        let rows: Vec<Row> = rows.into_iter().filter(|row| row.bytes_per_second[0] > 1e-300).collect();
        prop_assert_eq!(Profile::from_rows(rows.clone()).unwrap().rows().collect::<Vec<_>>(), rows);
    }

    /// The oracle takes logarithms from the standard library and looks at every point.
    #[test]
    fn the_nearest_point_answers(
        points in prop::collection::vec((1..1_u32 << 21, 1..300_u32, 1..100_u32), 1..40),
        at in (1..1_u32 << 21, 1..300_u32, 1..100_u32),
    ) {
        let mut points = points;
        points.sort_unstable();
        points.dedup();
        let rows = points.iter().enumerate().map(|(n, at)| Row::measured(point(at.0, at.1, at.2), [n as f64 + 1.0; 2]));
        let profile = Profile::from_rows(rows).unwrap();
        let distance = |a: &(u32, u32, u32)| {
            let axis = |a: u32, b: u32| (f64::from(a) / f64::from(b)).log2().powi(2);
            axis(a.0, at.0) + axis(a.1, at.1) + axis(a.2, at.2)
        };
        let answer = profile.rate(Path::DISK, point(at.0, at.1, at.2)).unwrap() as usize - 1;
        let least = points.iter().map(distance).fold(f64::INFINITY, f64::min);
        prop_assert!((distance(&points[answer]) - least).abs() < 1e-6);
    }

    #[test]
    fn rounding_takes_the_nearest_power_of_two_in_log_distance(x in 1..1_u32 << 30) {
        let nearest = 2_f64.powf(f64::from(x).log2().round());
        prop_assert_eq!(f64::from(nearest_power_of_two(x)), nearest);
    }

    #[test]
    fn filling_keeps_what_was_measured_and_stays_within_its_range(
        rates in prop::collection::vec((1.0..1e9_f64, 1.0..1e9_f64), 24)
    ) {
        let rows: Vec<Row> = quick_points().zip(rates).map(|(at, rates)| Row::measured(at, rates.into())).collect();
        let mut profile = Profile::from_rows(rows.clone()).unwrap();
        profile.fill();
        prop_assert_eq!(profile.rows().count(), 50);
        let all: Vec<Row> = profile.rows().collect();
        prop_assert_eq!(&all[..24], &rows[..]);
        for path in 0..PATHS {
            for block_bytes in BLOCK_BYTES {
                let of = |rows: &[Row]| -> Vec<f64> {
                    let rows = rows.iter().filter(|row| row.point.block_bytes == block_bytes);
                    rows.map(|row| row.bytes_per_second[path]).collect()
                };
                let (least, most) = of(&rows).iter().fold((f64::INFINITY, 0.0_f64), |(l, m), x| (l.min(*x), m.max(*x)));
                prop_assert!(of(&all).iter().all(|x| *x >= least * (1.0 - 1e-9) && *x <= most * (1.0 + 1e-9)));
            }
        }
    }
}
