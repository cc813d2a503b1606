-- Agent runs for analysts.

-- Without the view `days`: an agent run needs no playbook.
create view analytics.agent_runs with (security_invoker = true) as
select f.tenant_id, c.project_id, c.playbook, d.midnight::date as day, c.confidence_band, c.state, c.run_count, c.right_count, c.wrong_count,
       c.mean_confidence, c.question_count, c.replan_count, c.mean_seconds, c.token_count, c.cost_usd
from (select tenant_id, min(created_at) created_at from agent_runs group by tenant_id) f
cross join lateral generate_series(
    date_trunc('day', f.created_at at time zone 'UTC'), now() at time zone 'UTC', interval '1 day'
) d(midnight)
cross join lateral (
    select a.project_id, a.playbook, case when a.confidence >= 0.9 then 0.9 else floor(a.confidence * 10) / 10 end confidence_band, a.state, count(*) run_count,
           count(*) filter (where a.feedback = 'right') right_count, count(*) filter (where a.feedback = 'wrong') wrong_count,
           avg(a.confidence) mean_confidence, sum(a.round_count) question_count, sum(a.replan_count) replan_count,
           avg(extract(epoch from a.finished_at - a.created_at))::float8 mean_seconds, sum(a.token_count) token_count,
           sum(a.cost_usd) cost_usd
    from agent_runs a
    where a.tenant_id = f.tenant_id and a.created_at >= d.midnight at time zone 'UTC'
      and a.created_at < (d.midnight + interval '1 day') at time zone 'UTC'
    group by a.project_id, a.playbook, confidence_band, a.state
) c;

create policy agent_runs_analyst on agent_runs for select to hansei_analyst
using (analytics.is_own(tenant_id, analytics.login_tenant()) and tenant_id = analytics.login_tenant());
grant select (tenant_id, id, project_id, playbook, state, confidence, feedback, feedback_at, round_count, replan_count, token_count, cost_usd,
              trace_id, created_at, started_at, finished_at) on agent_runs to hansei_analyst;

grant select on analytics.effects, analytics.improvement, analytics.agent_runs to hansei_app, hansei_worker, hansei_analyst;

do $$
declare
    entry record;
begin
    for entry in
        select * from (values
            ('effects', '', 'How did agent runs of the last 30 days end with each bullet and without it?
Does not show: A cause, where basis is observational: the two sides may differ in their tasks. The effect of all advice: see improvement. Partial and unknown outcomes do not count. Retrievals are deleted after HANSEI_RETRIEVAL_RETENTION_DAYS. The function effects(since, until) has any period.'),
            ('effects', 'tenant_id', 'Tenant.'), ('effects', 'project_id', 'Project.'), ('effects', 'playbook', 'Name of the playbook.'),
            ('effects', 'key', 'Key of the bullet.'), ('effects', 'section', 'Section of the bullet.'),
            ('effects', 'status', 'active, quarantined, archived or deleted.'), ('effects', 'content', 'Text of the bullet.'),
            ('effects', 'basis', 'randomized: from the holdout experiment. observational: from all runs that had bullets of the playbook.'),
            ('effects', 'with_runs', 'Agent runs with the bullet.'), ('effects', 'with_successes', 'Successes among them.'), ('effects', 'with_rate', 'Share of successes, 0 to 1.'),
            ('effects', 'with_low', 'Lower end of its 95 % Wilson interval.'), ('effects', 'with_high', 'Upper end of its 95 % Wilson interval.'),
            ('effects', 'without_runs', 'Agent runs that had other bullets of the playbook, but not this one; 0: it was always served together with the others.'), ('effects', 'without_successes', 'Successes among them.'), ('effects', 'without_rate', 'Share of successes, 0 to 1.'),
            ('effects', 'without_low', 'Lower end of its 95 % Wilson interval.'), ('effects', 'without_high', 'Upper end of its 95 % Wilson interval.'),
            ('effects', 'difference', 'Difference of the two shares, -1 to 1; null if the bullet has no effect of its own: without runs on one side, or with always_with.'),
            ('effects', 'always_with', 'Other bullets that were in exactly the same runs, at most 10. Their effects cannot be separated.'),
            ('effects', 'low', 'Lower end of the 95 % interval.'), ('effects', 'high', 'Upper end of the 95 % interval.'),
            ('improvement', '', 'Do agents get better: how many agent runs succeeded each week, with advice and without it?
Does not show: A cause, without the hold-out of advice (HANSEI_ADVICE_HOLDOUT_SHARE): the tasks of two weeks may differ. Runs without a playbook, and partial and unknown outcomes. The view has the last 12 weeks, this one included. The function improvement(since, until) has any period.'),
            ('improvement', 'tenant_id', 'Tenant.'), ('improvement', 'project_id', 'Project.'), ('improvement', 'playbook', 'Name of the playbook; null for all of the project.'),
            ('improvement', 'week', 'Monday of the week, in UTC; null for the whole period.'),
            ('improvement', 'runs', 'Agent runs.'), ('improvement', 'successes', 'Successes among them.'), ('improvement', 'rate', 'Share of successes, 0 to 1.'),
            ('improvement', 'rate_low', 'Lower end of its 95 % Wilson interval.'), ('improvement', 'rate_high', 'Upper end of its 95 % Wilson interval.'),
            ('improvement', 'with_runs', 'Agent runs of the hold-out of advice that got advice.'), ('improvement', 'with_successes', 'Successes among them.'), ('improvement', 'with_rate', 'Share of successes, 0 to 1.'),
            ('improvement', 'without_runs', 'Agent runs of the hold-out of advice that got none.'), ('improvement', 'without_successes', 'Successes among them.'), ('improvement', 'without_rate', 'Share of successes, 0 to 1.'),
            ('improvement', 'difference', 'Difference of the two shares, -1 to 1.'),
            ('improvement', 'low', 'Lower end of the 95 % interval.'), ('improvement', 'high', 'Upper end of the 95 % interval.'),
            ('agent_runs', '', 'How sure were the runs of the agent each day, how did they end, and were their answers right?
Does not show: Whether an answer without feedback was right. A run counts for the day on which it was created.'),
            ('agent_runs', 'tenant_id', 'Tenant.'), ('agent_runs', 'project_id', 'Project.'),
            ('agent_runs', 'playbook', 'Name of the playbook; null for a run without one.'), ('agent_runs', 'day', 'Day, in UTC.'),
            ('agent_runs', 'confidence_band', 'Lower end of the band of the calibrated confidence: 0, 0.1, …, 0.9; null without an answer.'),
            ('agent_runs', 'state', 'queued, running, waiting, done, failed or cancelled.'), ('agent_runs', 'run_count', 'Agent runs.'),
            ('agent_runs', 'right_count', 'Those whose answer a person called right.'), ('agent_runs', 'wrong_count', 'Those whose answer a person called wrong.'),
            ('agent_runs', 'mean_confidence', 'Mean of the calibrated confidence, 0 to 1.'),
            ('agent_runs', 'question_count', 'Questions to a person.'), ('agent_runs', 'replan_count', 'New plans.'),
            ('agent_runs', 'mean_seconds', 'Mean time from creation to the end, waits for a person included, in seconds.'),
            ('agent_runs', 'token_count', 'Tokens of model calls.'), ('agent_runs', 'cost_usd', 'Cost, in US dollars.')
        ) v(view_name, column_name, description)
    loop
        if entry.column_name = '' then
            execute format('comment on view analytics.%I is %L', entry.view_name, entry.description);
        else
            execute format('comment on column analytics.%I.%I is %L', entry.view_name, entry.column_name, entry.description);
        end if;
    end loop;
end $$;

comment on function analytics.effects is 'The view effects for the agent runs from p_since, included, to p_until, excluded.';
comment on function analytics.improvement is 'The view improvement for the agent runs from p_since, included, to p_until, excluded.';
