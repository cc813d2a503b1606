-- What each view answers, what it does not show, and the unit of each column. psql shows these texts with \d+, BI tools show them too, and
-- docs/analytics.md is made of them.
do $$
declare
    entry record;
begin
    for entry in
        select * from (values
            ('days', 'Which days does the history of the tenant have?', 'Days before the first playbook.'),
            ('bullets', 'Which bullets does a playbook contain now, how are they judged, and how often were they served, up to a few minutes ago?',
             'Deleted and merged bullets, and deleted playbooks; see bullet_versions.'),
            ('bullet_versions', 'What changed in each bullet, when, by whom, why, and from which run?',
             'Verdicts and counters: they change no version. The reason is null if nobody gave one. trace_id is null if the run read several traces.'),
            ('playbook_sizes', 'How many active bullets did a playbook have at the end of each day?',
             'Quarantined and archived bullets, and the size during a day.'),
            ('churn', 'How many bullets were created, changed, merged, quarantined, released, archived, deleted and restored each day?',
             'Days and sections without a change. A bullet that changes twice is counted twice.'),
            ('survival', 'How long do bullets stay in use, and how long until the first helpful verdict?',
             'Why bullets leave use. The estimate (Kaplan-Meier) assumes that younger bullets do not differ from older ones.'),
            ('verdicts', 'How many helpful, harmful and neutral verdicts did each judge and model give each day?',
             'Outcomes that do not count, and verdicts of a trace that has one of a more reliable judge. A verdict that was changed counts for the day of its first version.'),
            ('movers', 'Which bullets gained the most helpful or harmful verdicts in the last 30 days?',
             'Bullets without a verdict in the period, and outcomes that do not count. The function movers(since, until) has any period.'),
            ('verdict_drift', 'For which bullets did the share of helpful verdicts of the last 30 days change since the 30 days before?',
             'The cause: the bullet, its tasks or its judges may have changed. Among 20 bullets without a change, one is significant by chance. The function verdict_drift(since, until) has any period.'),
            ('funnel', 'How many traces, reflections, lessons and bullets were there each day, and how many bullets were served, cited and judged?',
             'One group over time: each stage counts what happened on that day. Bullets of several days are counted once for each day.'),
            ('coverage', 'How well did the best bullet match each query, by day?',
             'Whether a bullet helped. Retrievals of which a hold-out withheld bullets. A match is strong from a score of 0.45, weak from 0.25, as in a search; scores of different embedding models are not comparable. Retrievals are deleted after HANSEI_RETRIEVAL_RETENTION_DAYS.'),
            ('uncovered_queries', 'Which queries found no bullet that matches?', 'Queries with an empty text, retrievals of which a hold-out withheld bullets, and retrievals that retention has deleted.'),
            ('near_duplicates', 'Which active bullets say nearly the same?',
             'Pairs that share fewer than two rare words, and pairs with a cosine below 0.85. A rare word occurs in 2 to 12 bullets of the playbook.'),
            ('contradictions', 'Which bullets did the curator find to contradict each other?', 'Contradictions that the curator did not compare, and those within one bullet.'),
            ('conflicts', 'In which traces does a check that the client declared contradict the outcome that it reported?',
             'Traces without a test report, a ground truth with match or expected calls, and traces that are not evaluated.'),
            ('costs', 'What did model calls cost each day, by playbook, purpose and model?',
             'Calls with an unknown price: unpriced_count counts them. Embedding calls.'),
            ('unit_costs', 'What did a playbook cost so far, by trace, lesson and bullet in use?',
             'Calls that retention has deleted, and calls with an unknown price. Deleted playbooks.'),
            ('error_categories', 'Which categories of errors did reflections find each day?', 'Traces without a reflection.'),
            ('effects', 'How did agent runs of the last 30 days end with each bullet and without it?',
             'A cause, where basis is observational: the two sides may differ in their tasks. The effect of all advice: see improvement. Partial and unknown outcomes do not count. Retrievals are deleted after HANSEI_RETRIEVAL_RETENTION_DAYS. The function effects(since, until) has any period.'),
            ('improvement', 'Do agents get better: how many agent runs succeeded each week, with advice and without it?',
             'A cause, without the hold-out of advice (HANSEI_ADVICE_HOLDOUT_SHARE): the tasks of two weeks may differ. Runs without a playbook, and partial and unknown outcomes. The view has the last 12 weeks, this one included. The function improvement(since, until) has any period.'),
            ('agent_runs', 'How sure were the runs of GRACE each day, how did they end, and were their answers right?',
             'Whether an answer without feedback was right. A run counts for the day on which it was created.')
        ) v(view_name, question, omits)
    loop
        execute format('comment on view analytics.%I is %L', entry.view_name, entry.question || E'\nDoes not show: ' || entry.omits);
    end loop;

    for entry in
        select c.relname view_name, a.attname column_name, d.description
        from (values
            ('', 'tenant_id', 'Tenant.'), ('', 'project_id', 'Project.'), ('', 'playbook', 'Name of the playbook.'),
            ('', 'day', 'Day, in UTC.'), ('', 'key', 'Key of the bullet.'), ('', 'section', 'Section of the bullet.'),
            ('', 'status', 'active, quarantined, archived or deleted.'), ('', 'content', 'Text of the bullet.'), ('', 'title', 'Title of the bullet.'),
            ('', 'when_to_use', 'When the bullet applies.'), ('', 'tags', 'Tags of the bullet.'), ('', 'pinned', 'Whether the curator leaves the bullet unchanged.'),
            ('', 'memory_id', 'ID of the memory.'), ('', 'created_at', 'Time of creation.'), ('', 'model', 'Model; of a verdict, the first model of its run.'),
            ('', 'other_key', 'Key of the other bullet.'), ('', 'other_section', 'Section of the other bullet.'), ('', 'other_status', 'Status of the other bullet.'),
            ('', 'other_content', 'Text of the other bullet.'), ('', 'trace_id', 'Trace.'), ('', 'retrieval_id', 'Retrieval.'), ('', 'task_key', 'Task of the trace.'),
            ('', 'outcome', 'Outcome of the trace.'), ('', 'kind', 'Kind of the item.'), ('', 'call_count', 'Model calls, failed ones included.'),
            ('', 'input_tokens', 'Input tokens, cached ones included.'), ('', 'output_tokens', 'Output tokens.'), ('', 'cost_usd', 'Cost, in US dollars.'),
            ('', 'helpful_count', 'Helpful verdicts.'), ('', 'harmful_count', 'Harmful verdicts.'), ('', 'neutral_count', 'Neutral verdicts.'),
            ('', 'low', 'Lower end of the 95 % interval.'), ('', 'high', 'Upper end of the 95 % interval.'), ('', 'difference', 'Difference of the two shares, -1 to 1.'),
            ('', 'playbook_version', 'Version of the playbook with this change.'), ('', 'revision', 'Number of the version of the bullet, from 1.'),
            ('', 'trace_count', 'Traces.'), ('', 'lesson_count', 'Strategies and insights.'),
            ('days', 'starts_at', 'Start of the day, included.'), ('days', 'ends_at', 'End of the day, excluded.'),
            ('bullets', 'helpful', 'Counted helpful verdicts.'), ('bullets', 'harmful', 'Counted harmful verdicts.'), ('bullets', 'neutral', 'Counted neutral verdicts.'),
            ('bullets', 'confidence_score', 'helpful / (helpful + harmful), 0 to 1; 0.5 without verdicts.'),
            ('bullets', 'usefulness', '5th percentile of Beta(1 + helpful, 1 + harmful), 0 to 1.'), ('bullets', 'served_count', 'Retrievals that returned the bullet.'),
            ('bullets', 'last_served_at', 'Time of the last such retrieval.'), ('bullets', 'observation_count', 'Traces that taught the same lesson.'),
            ('bullets', 'updated_at', 'Time of the last change of its text or status.'), ('bullets', 'created_by', 'Actor who created it: curator, run, or key: and the ID of an API key.'),
            ('bullets', 'created_reason', 'Reason of its creation.'), ('bullets', 'created_run_id', 'Run that created it.'),
            ('bullet_versions', 'changed_at', 'Time of the change.'), ('bullet_versions', 'valid_until', 'Time of the next change; null if this is the newest version.'),
            ('bullet_versions', 'change_type', 'created, changed, merged, quarantined, released, archived, deleted or restored.'),
            ('bullet_versions', 'merged_into', 'Key of the bullet that replaced it, for merged.'), ('bullet_versions', 'changed_by', 'Actor: curator, run, or key: and the ID of an API key.'),
            ('bullet_versions', 'reason', 'Why, as the actor or the run gave it.'), ('bullet_versions', 'run_id', 'Run that made the change.'),
            ('bullet_versions', 'run_kind', 'Kind of this run.'), ('bullet_versions', 'trace_id', 'Trace of this run.'),
            ('bullet_versions', 'playbook_change', 'Kind of change of the playbook, such as deltas, import or restore.'),
            ('playbook_sizes', 'active_count', 'Active bullets when the day ends.'), ('playbook_sizes', 'version', 'Version when the day ends.'),
            ('playbook_sizes', 'version_count', 'Versions of the day.'), ('playbook_sizes', 'added_count', 'Bullets added on the day.'),
            ('playbook_sizes', 'updated_count', 'Bullets changed on the day.'), ('playbook_sizes', 'removed_count', 'Bullets removed on the day.'),
            ('churn', 'created_count', 'Bullets created.'), ('churn', 'changed_count', 'Changes of text, section, tags or pin.'),
            ('churn', 'merged_count', 'Bullets merged into another.'), ('churn', 'quarantined_count', 'Bullets quarantined.'),
            ('churn', 'released_count', 'Bullets released from quarantine.'), ('churn', 'archived_count', 'Bullets archived.'),
            ('churn', 'deleted_count', 'Bullets deleted without a merge.'), ('churn', 'restored_count', 'Archived or deleted bullets that were restored.'),
            ('survival', 'event', 'left_use, of bullets that were ever in use, or first_helpful_verdict.'), ('survival', 'day', 'Whole days since the bullet was added.'),
            ('survival', 'at_risk_count', 'Bullets without the event that were observed this long.'), ('survival', 'event_count', 'Bullets with the event on this day.'),
            ('survival', 'survival', 'Kaplan-Meier estimate of the share without the event, 0 to 1.'),
            ('verdicts', 'judge', 'human, llm or outcome.'),
            ('movers', 'net_count', 'Helpful less harmful verdicts.'), ('movers', 'helpful_rate', 'Share of helpful among helpful and harmful verdicts, 0 to 1.'),
            ('verdict_drift', 'earlier_count', 'Helpful and harmful verdicts of the earlier period.'), ('verdict_drift', 'earlier_rate', 'Share of helpful ones among them, 0 to 1.'),
            ('verdict_drift', 'recent_count', 'Helpful and harmful verdicts of the period.'), ('verdict_drift', 'recent_rate', 'Share of helpful ones among them, 0 to 1.'),
            ('verdict_drift', 'is_significant', 'Whether the interval excludes 0.'),
            ('funnel', 'stage_number', 'Order of the stages, 1 to 8.'), ('funnel', 'stage', 'Name of the stage.'),
            ('funnel', 'count', 'Traces or lessons of the day, or distinct bullets from bullets_served on.'),
            ('coverage', 'retrieval_count', 'Searches and renders with a query.'), ('coverage', 'strong_count', 'Those whose best bullet is a strong match.'),
            ('coverage', 'weak_count', 'Those whose best bullet is a weak match.'), ('coverage', 'unmatched_count', 'Those without a bullet that matches.'),
            ('coverage', 'median_best_score', 'Median of the best score, 0 to 1.'),
            ('uncovered_queries', 'kind', 'search or render.'), ('uncovered_queries', 'query', 'Text of the query.'), ('uncovered_queries', 'best_score', 'Best score, 0 to 1, below 0.25; null without a bullet.'),
            ('uncovered_queries', 'bullet_count', 'Bullets that were handed out: a small playbook is handed out whole.'),
            ('near_duplicates', 'cosine', 'Cosine of the two vectors, 0.85 to 1.'), ('near_duplicates', 'changed_at', 'Time of the later change of the two.'),
            ('contradictions', 'found_at', 'Time at which the curator found it.'),
            ('conflicts', 'reported_outcome', 'success or failure, as the client reported it.'), ('conflicts', 'check_outcome', 'failure or success, by the check. Learning uses it.'),
            ('conflicts', 'reason', 'What the check found.'),
            ('costs', 'purpose', 'reflect, curate, evaluate, ….'), ('costs', 'provider', 'Provider of the model.'), ('costs', 'failed_count', 'Calls that failed.'),
            ('costs', 'unpriced_count', 'Successful calls with an unknown price.'),
            ('unit_costs', 'bullet_count', 'Active bullets.'), ('unit_costs', 'usd_per_trace', 'Cost per trace, in US dollars.'), ('unit_costs', 'usd_per_lesson', 'Cost per strategy or insight, in US dollars.'),
            ('unit_costs', 'usd_per_bullet', 'Cost per bullet in use, in US dollars.'),
            ('error_categories', 'error_category', 'Category of the error; null without one.'), ('error_categories', 'reflection_count', 'Reflections with this category.'),
            ('error_categories', 'failed_count', 'Those of failed traces.'),
            ('effects', 'basis', 'randomized: from the holdout experiment. observational: from all runs that had bullets of the playbook.'),
            ('effects', 'with_runs', 'Agent runs with the bullet.'), ('effects', 'with_successes', 'Successes among them.'),
            ('effects', 'with_rate', 'Share of successes, 0 to 1.'), ('effects', 'with_low', 'Lower end of its 95 % Wilson interval.'),
            ('effects', 'with_high', 'Upper end of its 95 % Wilson interval.'),
            ('effects', 'without_runs', 'Agent runs that had other bullets of the playbook, but not this one; 0: it was always served together with the others.'),
            ('effects', 'without_successes', 'Successes among them.'), ('effects', 'without_rate', 'Share of successes, 0 to 1.'),
            ('effects', 'without_low', 'Lower end of its 95 % Wilson interval.'), ('effects', 'without_high', 'Upper end of its 95 % Wilson interval.'),
            ('effects', 'difference', 'Difference of the two shares, -1 to 1; null if the bullet has no effect of its own: without runs on one side, or with always_with.'),
            ('effects', 'always_with', 'Other bullets that were in exactly the same runs, at most 10. Their effects cannot be separated.'),
            ('improvement', 'playbook', 'Name of the playbook; null for all of the project.'),
            ('improvement', 'week', 'Monday of the week, in UTC; null for the whole period.'), ('improvement', 'runs', 'Agent runs.'),
            ('improvement', 'successes', 'Successes among them.'), ('improvement', 'rate', 'Share of successes, 0 to 1.'),
            ('improvement', 'rate_low', 'Lower end of its 95 % Wilson interval.'), ('improvement', 'rate_high', 'Upper end of its 95 % Wilson interval.'),
            ('improvement', 'with_runs', 'Agent runs of the hold-out of advice that got advice.'), ('improvement', 'with_successes', 'Successes among them.'),
            ('improvement', 'with_rate', 'Share of successes, 0 to 1.'), ('improvement', 'without_runs', 'Agent runs of the hold-out of advice that got none.'),
            ('improvement', 'without_successes', 'Successes among them.'), ('improvement', 'without_rate', 'Share of successes, 0 to 1.'),
            ('agent_runs', 'playbook', 'Name of the playbook; null for a run without one.'),
            ('agent_runs', 'confidence_band', 'Lower end of the band of the calibrated confidence: 0, 0.1, …, 0.9; null without an answer.'),
            ('agent_runs', 'state', 'queued, running, waiting, done, failed or cancelled.'), ('agent_runs', 'run_count', 'Agent runs.'),
            ('agent_runs', 'right_count', 'Those whose answer a person called right.'), ('agent_runs', 'wrong_count', 'Those whose answer a person called wrong.'),
            ('agent_runs', 'mean_confidence', 'Mean of the calibrated confidence, 0 to 1.'), ('agent_runs', 'question_count', 'Questions to a person.'),
            ('agent_runs', 'replan_count', 'New plans.'), ('agent_runs', 'mean_seconds', 'Mean time from creation to the end, waits for a person included, in seconds.'),
            ('agent_runs', 'token_count', 'Tokens of model calls.')
        ) d(view_name, column_name, description)
        join pg_class c on c.relnamespace = 'analytics'::regnamespace and c.relkind = 'v' and (d.view_name = c.relname or d.view_name = '')
        join pg_attribute a on a.attrelid = c.oid and a.attname = d.column_name
        order by d.view_name  -- the text of a view after the common text
    loop
        execute format('comment on column analytics.%I.%I is %L', entry.view_name, entry.column_name, entry.description);
    end loop;
end $$;

comment on function questions.movers is 'The view movers for the verdicts from p_since, included, to p_until, excluded.';
comment on function questions.verdict_drift is 'The view verdict_drift for a period, compared with the equally long period before it.';
comment on function questions.match_of is 'strong, weak or none: how well the bullets fit the query, by the best score.';
comment on function analytics.playbook_at is 'Which bullets did a playbook have at a time?
Does not show: Counters of the past. Deleted bullets.';
comment on function analytics.playbook_diff is 'Which bullets differ between two times of a playbook?
Does not show: Changes that were undone in between; see bullet_versions.';
